module github.com/semelhq/semel/semelecho

go 1.25.0

require (
	github.com/labstack/echo/v5 v5.4.5
	github.com/semelhq/semel v0.0.0
)

replace github.com/semelhq/semel => ../
