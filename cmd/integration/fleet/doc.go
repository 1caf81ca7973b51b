// Package fleet runs several gateways on one store in front of a service that counts its effects, and puts load on them
// while one is killed. Each gateway is a process of its own: this program again, as [Act] makes it one.
package fleet
