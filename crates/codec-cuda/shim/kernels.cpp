// The kernels, apart from what runs them: only they are looked at by a sanitiser.
#include "shim.h"

#include "../kernels/prelude.cuh"

// One file after the other, each in its own namespace: helpers may share names.
#include "files.inc"

extern "C" void mdl_shim_kernels() {}
