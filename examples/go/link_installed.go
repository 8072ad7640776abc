//go:build sq_installed

package sq

// The library as `make install` leaves it: go build -tags sq_installed.

// #cgo pkg-config: sq
import "C"
