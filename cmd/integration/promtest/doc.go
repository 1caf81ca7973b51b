// Package promtest has a real Prometheus watch real gateways with the alerting rules of deploy/alerts.yml, while
// processes, service and store fail.
package promtest
