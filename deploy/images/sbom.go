package images

import (
	"fmt"

	"github.com/kubeslot/kubeslot/deploy/sbom"
)

// SBOM lists the Go modules that a program and its plugins are made of, which they say
// themselves, and the C library, as SPDX 2.3 JSON.
func SBOM(p Program) ([]byte, error) {
	bill := sbom.New(p.Name, p.Created)
	main, err := bill.AddProgram(bill.ID, "DESCRIBES", p.Version, p.Binary)
	if err != nil {
		return nil, fmt.Errorf("modules of %s: %w", p.Name, err)
	}
	for _, f := range p.Plugins {
		if _, err := bill.AddProgram(main, "CONTAINS", p.Version, f.Data); err != nil {
			return nil, fmt.Errorf("modules of %s: %w", f.Name, err)
		}
	}
	if p.LibC != "" {
		bill.Add(main, "DYNAMIC_LINK", sbom.Package{Name: "glibc", Version: p.LibC})
	}
	return bill.JSON()
}
