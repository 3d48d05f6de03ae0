package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kubeslot/kubeslot/types"
)

// TestTranslate runs testdata/translate.txt. Names are without "resource/group/";
// "node" sets the node's, "requests" those of a container, "lift" lifts the
// requests to stage this over next.
func TestTranslate(t *testing.T) {
	var node, requests types.ResourceList
	datadriven.RunTest(t, "testdata/translate.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "node":
			node = read(t, d.Input)
		case "requests":
			requests = read(t, d.Input)
		case "lift":
			var this, next string
			d.ScanArgs(t, "this", &this)
			d.ScanArgs(t, "next", &next)
			modified, lifted := TranslateResource(node, requests, this, next)
			requests = lifted
			if !modified {
				return "as it was"
			}
			var out strings.Builder
			for _, name := range slices.Sorted(maps.Keys(lifted)) {
				fmt.Fprintf(&out, "%s %d\n", strings.TrimPrefix(string(name), types.DeviceGroupPrefix+"/"), lifted[name])
			}
			return out.String()
		default:
			t.Fatalf("unknown command %q", d.Cmd)
		}
		return ""
	})
}

// FuzzTranslate: whatever the names, translating twice is translating once, no
// request is lost, no input is changed, and only names change.
func FuzzTranslate(f *testing.F) {
	f.Add("gpugrp0/1/gpu/2/cards", "gpu/0/cards\ngpugrp0/7/gpu/a/cards\ngpu/1/cards\ngpu/1/memory", "gpugrp0", "gpu")
	f.Add("a/1/b/2/c", "b/0/c\nb/a/1/b/c\na/9223372036854775807/b/c\na/-1/b//", "a", "b")
	f.Add("a/1//2", "//0\n/a//b/", "a", "")
	f.Fuzz(func(t *testing.T, has, wants, this, next string) {
		node, requests := read(t, has), read(t, wants)
		nodeBefore, before := maps.Clone(node), maps.Clone(requests)
		modified, once := TranslateResource(node, requests, this, next)
		if !maps.Equal(node, nodeBefore) || !maps.Equal(requests, before) {
			t.Fatal("changed its input")
		}
		if sum(once) != sum(requests) {
			t.Fatalf("%v became %v", requests, once)
		}
		if !modified && !maps.Equal(once, requests) {
			t.Fatalf("says that it changed nothing, but %v became %v", requests, once)
		}
		if again, twice := TranslateResource(node, once, this, next); again || !maps.Equal(twice, once) {
			t.Fatalf("%v became %v, and that %v", requests, once, twice)
		}
	})
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		name        types.ResourceName
		group, enum bool
	}{
		{"resource/group/gpu/0/cards", true, false},
		{"resource/group/gpu/0/enumType", true, true},
		{"resource/group/gpu/0/ENUM", true, true},
		{"resource/group/gpu/0/numType", true, false},
		{"resource/group/enum/0/cards", true, false},
		{"resource/group/gpu/0/", true, false},
		{"resource/groups", true, false}, // as in KubeDevice
		{"nvidia.com/gpu", false, false},
		{"nvidia.com/enumType", false, true},
		{"enumType", false, false},
		{"", false, false},
	} {
		if IsGroupResourceName(c.name) != c.group || PrecheckedResource(c.name) == c.group {
			t.Errorf("%q: group %v, prechecked %v", c.name, IsGroupResourceName(c.name), PrecheckedResource(c.name))
		}
		if IsEnumResource(c.name) != c.enum {
			t.Errorf("%q: enum %v", c.name, IsEnumResource(c.name))
		}
	}
}

func TestInsufficientResourceError(t *testing.T) {
	e := NewInsufficientResourceError("x", 3, 1, 2)
	if got := e.GetReason(); got != "Insufficient x" {
		t.Error(got)
	}
	if name, requested, used, capacity := e.GetInfo(); name != "x" || requested != 3 || used != 1 || capacity != 2 {
		t.Error(name, requested, used, capacity)
	}
	if got := e.Error(); got != "Insufficient x: requested 3, used 1 of 2" {
		t.Error(got)
	}
}

// read has the line number as the count.
func read(t *testing.T, lines string) types.ResourceList {
	t.Helper()
	list := types.ResourceList{}
	n := int64(0)
	for line := range strings.Lines(lines) {
		n++
		types.AddGroupResource(list, strings.TrimSuffix(line, "\n"), n)
	}
	return list
}

func sum(list types.ResourceList) (n int64) {
	for _, count := range list {
		n += count
	}
	return n
}
