package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

// The functions of CUDA's driver API that are called, declared here so that no header of NVIDIA's is needed. Its types
// are int (CUresult, CUdevice), a pointer (CUcontext), 64 bits (CUdeviceptr) and 16 bytes (CUuuid).
static int init(void *f) { return ((int (*)(unsigned))f)(0); }
static int count(void *f, int *n) { return ((int (*)(int *))f)(n); }
static int get(void *f, int *device, int i) { return ((int (*)(int *, int))f)(device, i); }
static int uuid(void *f, char *bytes, int device) { return ((int (*)(char *, int))f)(bytes, device); }
static int create(void *f, void **context, int device) {
	return ((int (*)(void **, unsigned, int))f)(context, 0, device);
}
static int destroy(void *f, void *context) { return ((int (*)(void *))f)(context); }
static int allocate(void *f, unsigned long long *at, size_t n) {
	return ((int (*)(unsigned long long *, size_t))f)(at, n);
}
static int toDevice(void *f, unsigned long long to, void *from, size_t n) {
	return ((int (*)(unsigned long long, const void *, size_t))f)(to, from, n);
}
static int toHost(void *f, void *to, unsigned long long from, size_t n) {
	return ((int (*)(void *, unsigned long long, size_t))f)(to, from, n);
}
static int release(void *f, unsigned long long at) { return ((int (*)(unsigned long long))f)(at); }
static int name(void *f, int code, const char **text) { return ((int (*)(int, const char **))f)(code, text); }
*/
import "C"

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"unsafe"
)

// libcuda is where NVIDIA's driver has CUDA's driver API.
const libcuda = "libcuda.so.1"

// cuda is the library, opened.
type cuda struct {
	functions map[string]unsafe.Pointer
}

var cudaFunctions = []string{
	"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid_v2", "cuCtxCreate_v2", "cuCtxDestroy_v2",
	"cuMemAlloc_v2", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemFree_v2", "cuGetErrorName",
}

func openCUDA(library string) (*cuda, error) {
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	handle := C.dlopen(path, C.RTLD_NOW|C.RTLD_LOCAL)
	if handle == nil {
		return nil, fmt.Errorf("open %s: %s", library, C.GoString(C.dlerror()))
	}
	c := &cuda{functions: map[string]unsafe.Pointer{}}
	for _, function := range cudaFunctions {
		symbol := C.CString(function)
		c.functions[function] = C.dlsym(handle, symbol)
		C.free(unsafe.Pointer(symbol))
		if c.functions[function] == nil {
			return nil, fmt.Errorf("%s has no %s: it is of a driver older than CUDA 11.4", library, function)
		}
	}
	return c, nil
}

// check turns what a function returned into an error.
func (c *cuda) check(function string, code C.int) error {
	if code == 0 {
		return nil
	}
	var text *C.char
	if C.name(c.functions["cuGetErrorName"], code, &text) != 0 {
		return fmt.Errorf("%s: error %d", function, code)
	}
	return fmt.Errorf("%s: %s", function, C.GoString(text))
}

// devices returns how many GPUs a CUDA program sees.
func (c *cuda) devices() (int, error) {
	if err := c.check("cuInit", C.init(c.functions["cuInit"])); err != nil {
		return 0, err
	}
	var n C.int
	return int(n), c.check("cuDeviceGetCount", C.count(c.functions["cuDeviceGetCount"], &n))
}

// uuid returns the UUID of a GPU or MIG slice, without the "GPU-" or "MIG-" that NVML has before it.
func (c *cuda) uuid(index int) (string, error) {
	var device C.int
	if err := c.check("cuDeviceGet", C.get(c.functions["cuDeviceGet"], &device, C.int(index))); err != nil {
		return "", err
	}
	var id [16]C.char
	if err := c.check("cuDeviceGetUuid_v2", C.uuid(c.functions["cuDeviceGetUuid_v2"], &id[0], device)); err != nil {
		return "", err
	}
	s := hex.EncodeToString(C.GoBytes(unsafe.Pointer(&id[0]), C.int(len(id))))
	return fmt.Sprintf("%s-%s-%s-%s-%s", s[:8], s[8:12], s[12:16], s[16:20], s[20:]), nil
}

// copy makes a context on the GPU, and copies so many bytes to its memory and back.
func (c *cuda) copy(index, size int) (err error) {
	var device C.int
	if err := c.check("cuDeviceGet", C.get(c.functions["cuDeviceGet"], &device, C.int(index))); err != nil {
		return err
	}
	var context unsafe.Pointer
	if err := c.check("cuCtxCreate_v2", C.create(c.functions["cuCtxCreate_v2"], &context, device)); err != nil {
		return err
	}
	defer func() {
		destroyed := c.check("cuCtxDestroy_v2", C.destroy(c.functions["cuCtxDestroy_v2"], context))
		err = errors.Join(err, destroyed)
	}()
	var at C.ulonglong
	if err := c.check("cuMemAlloc_v2", C.allocate(c.functions["cuMemAlloc_v2"], &at, C.size_t(size))); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.check("cuMemFree_v2", C.release(c.functions["cuMemFree_v2"], at))) }()
	sent, back := make([]byte, size), make([]byte, size)
	for i := range sent {
		sent[i] = byte(i ^ i>>8 ^ i>>16 ^ index)
	}
	code := C.toDevice(c.functions["cuMemcpyHtoD_v2"], at, unsafe.Pointer(&sent[0]), C.size_t(size))
	if err := c.check("cuMemcpyHtoD_v2", code); err != nil {
		return err
	}
	code = C.toHost(c.functions["cuMemcpyDtoH_v2"], unsafe.Pointer(&back[0]), at, C.size_t(size))
	if err := c.check("cuMemcpyDtoH_v2", code); err != nil {
		return err
	}
	if !bytes.Equal(sent, back) {
		return fmt.Errorf("%d bytes came back from the GPU's memory changed", size)
	}
	return nil
}
