package need

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Port returns a TCP port that is free, for a program that takes the number of one. It is below those
// of which the kernel gives one to whoever asks for any: no connection of another test takes it meanwhile.
func Port(t testing.TB) int {
	t.Helper()
	const first, number, tries = 20_000, 10_000, 100
	var err error
	for range tries {
		port := first + rand.IntN(number)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatalf("none of %d ports is free: %v", tries, err)
	return 0
}
