module github.com/semelhq/semel/semelwatermill

go 1.25.0

require (
	github.com/ThreeDotsLabs/watermill v1.5.1
	github.com/semelhq/semel v0.0.0
)

require (
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/sony/gobreaker v1.0.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
)

replace github.com/semelhq/semel => ../
