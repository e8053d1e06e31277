module txos

go 1.21
