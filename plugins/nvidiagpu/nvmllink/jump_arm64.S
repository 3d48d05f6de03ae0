// Each function jumps to what its pointer in nvmllink.c holds. They are hidden:
// the library's own calls of the same names must not lead here. x16 is the
// register that a call may lose on its way.
#define NVML(name) .hidden name; .globl name; .type name, %function; name: adrp x16, nvmllink_##name; ldr x16, [x16, :lo12:nvmllink_##name]; br x16;
	.text
#include "symbols.h"
	.section .note.GNU-stack, "", %progbits
