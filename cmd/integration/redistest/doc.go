// Package redistest proves package redisstore on real servers, with rueidis and with go-redis.
package redistest
