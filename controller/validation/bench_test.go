package validation

import (
	"testing"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// What a write of a Configuration waits for the checks.
func BenchmarkCheck(b *testing.B) {
	c, err := NewChecker(Handlers())
	if err != nil {
		b.Fatal(err)
	}
	for _, sample := range samples(b) {
		b.Run(sample.Name, func(b *testing.B) {
			for b.Loop() {
				if f := c.Check(sample); len(f.Errors) > 0 {
					b.Fatal(f.Errors)
				}
			}
		})
	}
	for name, details := range hostileDetails() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				c.Check(&akriv0.Configuration{Spec: akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "udev", DiscoveryDetails: details}}})
			}
		})
	}
}
