module example.com/sq

go 1.21
