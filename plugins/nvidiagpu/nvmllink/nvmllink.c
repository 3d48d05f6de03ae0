#include <dlfcn.h>
#include <stddef.h>
#include "nvmllink.h"

// NVML_ERROR_FUNCTION_NOT_FOUND
static int missing(void) { return 13; }

#define NVML(name) __attribute__((visibility("hidden"))) void *nvmllink_##name = (void *)missing;
#include "symbols.h"
#undef NVML

static const struct {
	const char *name;
	void **function;
} functions[] = {
#define NVML(name) {#name, &nvmllink_##name},
#include "symbols.h"
#undef NVML
};

void nvmllink_fill(void *library) {
	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
		void *found = dlsym(library, functions[i].name);
		if (found != NULL)
			*functions[i].function = found;
	}
}
