// A libcuda for tests: its GPUs are the device nodes /dev/nvidia<n> that it can open, with fakenvml's UUIDs, without
// those with a variable FAKE_MIG_<n>. Its MIG slices are the /dev/nvidia-caps/nvidia-cap<n> that it can open and that
// have their UUID in FAKE_CAP_<n>. As NVIDIA's it makes nodes that are missing, if it may, and has no GPU without
// /dev/nvidiactl. CORRUPT has it change what is copied, BLIND see one GPU too few, and NEAR give the UUIDs of
// neighbours.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static unsigned char uuids[16][16];
static int n;

static int opens(const char *path) {
	int file = open(path, O_RDWR);
	if (file >= 0)
		close(file);
	return file >= 0;
}

int cuInit(unsigned flags) {
	if (!opens("/dev/nvidiactl"))
		return 100;
	n = 0;
	for (int i = 0; i < 8; i++) {
		static const unsigned char fake[16] = {0xfa, 0x4e, 0, 0, 0, 0, 0x40, 0, 0x80};
		char path[64], variable[32];
		snprintf(path, sizeof path, "/dev/nvidia%d", i);
		snprintf(variable, sizeof variable, "FAKE_MIG_%d", i);
		mknod(path, S_IFCHR | 0666, makedev(1, 3));
		if (opens(path) && getenv(variable) == NULL) {
			memcpy(uuids[n], fake, sizeof fake);
			uuids[n++][15] = i;
		}
		snprintf(path, sizeof path, "/dev/nvidia-caps/nvidia-cap%d", i);
		snprintf(variable, sizeof variable, "FAKE_CAP_%d", i);
		const char *hex = getenv(variable);
		if (hex != NULL && opens(path)) {
			for (int j = 0; j < 16; j++)
				sscanf(hex + 2 * j, "%2hhx", &uuids[n][j]);
			n++;
		}
	}
#ifdef BLIND
	n--;
#endif
	return n > 0 ? 0 : 100;
}

int cuDeviceGetCount(int *count) { *count = n; return 0; }
int cuDeviceGet(int *device, int i) { *device = i; return i < n ? 0 : 101; }

int cuDeviceGetUuid_v2(char *uuid, int device) {
	memcpy(uuid, uuids[device], 16);
#ifdef NEAR
	uuid[15]++;
#endif
	return 0;
}

static int contexts;

int cuCtxCreate_v2(void **context, unsigned flags, int device) { *context = &contexts; contexts++; return 0; }
int cuCtxDestroy_v2(void *context) { contexts--; return context == &contexts ? 0 : 201; }

int cuMemAlloc_v2(unsigned long long *at, size_t size) {
	*at = (unsigned long long)(size_t)malloc(size);
	return contexts != 1 ? 201 : *at != 0 ? 0 : 2;
}
int cuMemFree_v2(unsigned long long at) { free((void *)(size_t)at); return 0; }

int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) {
	memcpy((void *)(size_t)to, from, size);
#ifdef CORRUPT
	((char *)(size_t)to)[size - 1] ^= 1;
#endif
	return 0;
}
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) {
	memcpy(to, (void *)(size_t)from, size);
	return 0;
}

int cuGetErrorName(int code, const char **text) {
	*text = code == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_OF_ANOTHER_KIND";
	return 0;
}
