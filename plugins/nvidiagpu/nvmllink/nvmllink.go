// Package nvmllink lets a Go plugin contain go-nvml.
//
// go-nvml calls NVML's C functions by name, and leaves them undefined until it
// has opened libnvidia-ml.so.1. A Go program may do so, whose functions are bound
// when they are first called. A plugin may not: plugin.Open binds all of them at
// once and fails at the first one, on each node that has no driver and on each
// that has. So this package defines them all, as jumps through a table, which
// Load fills from the library.
//
// symbols.h lists the functions; plugins/builder's test says which it lacks.
package nvmllink

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "nvmllink.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

// Library is where NVIDIA's driver has NVML.
const Library = "libnvidia-ml.so.1"

var (
	mu     sync.Mutex
	loaded bool
)

// Load opens the library and has the functions lead to it. Until it has, they
// return NVML_ERROR_FUNCTION_NOT_FOUND, as do later those that the library does
// not have. Once loaded, it stays: further calls do nothing.
func Load(library string) error {
	mu.Lock()
	defer mu.Unlock()
	if loaded {
		return nil
	}
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	handle := C.dlopen(name, C.RTLD_LAZY|C.RTLD_LOCAL)
	if handle == nil {
		return fmt.Errorf("open %s: %s", library, C.GoString(C.dlerror()))
	}
	C.nvmllink_fill(handle)
	loaded = true
	return nil
}
