/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for CUDA's driver (libcuda.so.1) that loads no code and runs nothing: loading what
 * cuDNN has compiled at run time succeeds, so that its engines become plans on a machine without a
 * GPU. There is no device, and everything else fails. The names are those that cuDNN 9.19 looks up.
 */
enum { SUCCESS = 0, NO_DEVICE = 100 };

#define ABSENT(name)      \
    int name(void);       \
    int name(void)        \
    {                     \
        return NO_DEVICE; \
    }
ABSENT(cuCtxGetCurrent)
ABSENT(cuCtxGetLimit)
ABSENT(cuCtxPopCurrent)
ABSENT(cuCtxPushCurrent)
ABSENT(cuDeviceGet)
ABSENT(cuDeviceGetCount)
ABSENT(cuDriverGetVersion)
ABSENT(cuGetErrorName)
ABSENT(cuGetExportTable)
ABSENT(cuKernelGetAttribute)
ABSENT(cuKernelSetAttribute)
ABSENT(cuLaunchCooperativeKernel)
ABSENT(cuLaunchKernel)
ABSENT(cuLaunchKernelEx)
ABSENT(cuLibraryLoadFromFile)
ABSENT(cuLinkAddData)
ABSENT(cuLinkComplete)
ABSENT(cuLinkCreate)
ABSENT(cuLinkDestroy)
ABSENT(cuOccupancyMaxPotentialClusterSize)
ABSENT(cuStreamGetCtx)

int cuInit(unsigned flags);
int cuGetErrorString(int error, const char **out_text);
int cuLibraryLoadData(void **out_library);
int cuLibraryGetKernel(void **out_kernel);
int cuLibraryUnload(void *library);

int cuInit(unsigned flags)
{
    (void)flags;
    return SUCCESS;
}

int cuGetErrorString(int error, const char **out_text)
{
    *out_text = error == SUCCESS ? "no error" : "the driver is a stand-in";
    return SUCCESS;
}

/* Their further parameters are not looked at. */
int cuLibraryLoadData(void **out_library)
{
    static char library;
    *out_library = &library;
    return SUCCESS;
}

int cuLibraryGetKernel(void **out_kernel)
{
    static char kernel;
    *out_kernel = &kernel;
    return SUCCESS;
}

int cuLibraryUnload(void *library)
{
    (void)library;
    return SUCCESS;
}
