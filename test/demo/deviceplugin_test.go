package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// A pod that fails is explained by a page, which is there and speaks of it.
func TestFailureIsExplained(t *testing.T) {
	m := regexp.MustCompile(`"([^"]*)"\s+in\s+(docs/[^ ]*\.md)`).FindStringSubmatch(notAvoided)
	if m == nil {
		t.Fatalf("no section of a page is named in\n%s", notAvoided)
	}
	page, err := os.ReadFile("../../" + m[2])
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## "+m[1]+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found || !strings.Contains(section, "UnexpectedAdmissionError") {
		t.Errorf("section %q of %s does not speak of UnexpectedAdmissionError", m[1], m[2])
	}
}
