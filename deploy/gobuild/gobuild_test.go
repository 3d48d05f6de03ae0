package gobuild

import "testing"

// The images of a test are compiled with the flags that make has set, and a release with its own.
func TestCompilerFlags(t *testing.T) {
	const optimized = "-gcflags=all=-dwarf=false"
	for _, c := range []struct {
		name string
		env  []string
		want string
	}{
		{"no GOFLAGS", []string{"HOME=/root"}, optimized},
		{"others", []string{"GOFLAGS=-trimpath"}, optimized},
		{"one flag", []string{"GOFLAGS=-trimpath -gcflags=all=-l -tags=netgo"}, "-gcflags=all=-l"},
		{
			"in quotes", []string{"GOFLAGS=-trimpath '-gcflags=all=-dwarf=false -l' '-toolexec=env GOGC=400'"},
			"-gcflags=all=-dwarf=false -l",
		},
		{"go takes the last flag", []string{"GOFLAGS='-gcflags=all=-l -N' -gcflags=all=-l"}, "-gcflags=all=-l"},
		{"and the last variable", []string{"GOFLAGS=-gcflags=all=-l", "GOFLAGS=-trimpath"}, optimized},
	} {
		if got := CompilerFlags(c.env); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
