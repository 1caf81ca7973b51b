module github.com/semelhq/semel/bench

go 1.26

require github.com/semelhq/semel v0.0.0

replace github.com/semelhq/semel => ../
