// Each function jumps to what its pointer in nvmllink.c holds. They are hidden:
// the library's own calls of the same names must not lead here.
#define NVML(name) .hidden name; .globl name; .type name, @function; name: jmp *nvmllink_##name(%rip);
	.text
#include "symbols.h"
	.section .note.GNU-stack, "", @progbits
