package wake

import "testing"

// What is sent while nobody receives does not block, and is received once.
func TestSend(t *testing.T) {
	s := New()
	for range 2 {
		s.Send()
		s.Send()
		<-s
		if len(s) > 0 {
			t.Fatal("received twice")
		}
	}
}
