module github.com/semelhq/semel

go 1.25
