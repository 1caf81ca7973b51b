module github.com/semelhq/semel/cmd

go 1.26

require (
	github.com/alecthomas/kong v1.17.0
	github.com/semelhq/semel v0.0.0
)

replace github.com/semelhq/semel => ../
