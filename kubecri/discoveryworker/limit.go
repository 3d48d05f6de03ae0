//go:build !race

package discoveryworker

// MaxMemory is how many bytes of memory that it may write to the worker takes (RLIMIT_DATA). A list of
// 16 MiB, which is the longest there may be, takes 100 MiB while it is passed on.
const MaxMemory = 256 << 20
