package soplugins

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/types/contain"
)

// A process that had all the variables would not start: the runtime says less clearly why.
func TestVariablesTogetherAreBounded(t *testing.T) {
	env := map[string]string{}
	for i := range 30_000 {
		env[fmt.Sprintf("VARIABLE_%d", i)] = "none"
	}
	got, err := edits("many", given{env: env})
	if !errors.Is(err, contain.ErrInvalid) || !strings.Contains(err.Error(), "30000 variables") || len(got.Env) > 0 {
		t.Errorf("30,000 variables become %d (%v), want an error that counts them", len(got.Env), err)
	}
}
