// The functions of NVML (libnvidia-ml.so.1, a part of NVIDIA's driver) that are called here, and their types. Declared
// from NVIDIA's documentation of NVML ("NVML API Reference Guide", docs.nvidia.com/deploy/nvml-api), because nvml.h
// comes with CUDA's toolkit only; layouts and numbers are compared with those of nvidia-ml-py. The driver keeps these
// versions of the functions for programs that were built with older headers.
#pragma once

namespace lockstep::gpus::nvml {

using Return = int;  // nvmlReturn_t
inline constexpr Return kSuccess = 0, kNotSupported = 3, kInsufficientSize = 7, kGpuIsLost = 15;

struct DeviceState;
using Device = DeviceState*;  // nvmlDevice_t

struct PciInfo {  // nvmlPciInfo_t, version 3
  char bus_id_legacy[16];
  unsigned domain, bus, device;
  unsigned pci_device_id, pci_sub_system_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);

struct Memory {  // nvmlMemory_t: bytes; `used` includes what the driver keeps
  unsigned long long total, free, used;
};

struct Utilization {  // nvmlUtilization_t: percent of the last sample period
  unsigned gpu, memory;
};

struct ProcessInfo {  // nvmlProcessInfo_t, version 3
  unsigned pid;
  unsigned long long used_gpu_memory;  // bytes, or kNotAvailable
  unsigned gpu_instance_id, compute_instance_id;
};
static_assert(sizeof(ProcessInfo) == 24);
inline constexpr unsigned long long kNotAvailable = ~0ull;  // NVML_VALUE_NOT_AVAILABLE

inline constexpr int kTemperatureGpu = 0;  // NVML_TEMPERATURE_GPU
inline constexpr int kCorrected = 0, kUncorrected = 1;  // nvmlMemoryErrorType_t
inline constexpr int kVolatile = 0;  // NVML_VOLATILE_ECC: since the driver was loaded
inline constexpr int kPeerRead = 0;  // NVML_P2P_CAPS_INDEX_READ
inline constexpr int kPeerOk = 0;  // NVML_P2P_STATUS_OK

/// nvmlClocksEventReasons, which were called throttle reasons before driver 535. The idle state and clocks that a user
/// has set are no reason to worry, and are left out.
struct ClockReason {
  unsigned long long bit;
  const char* words;
};
inline constexpr ClockReason kClockReasons[] = {{0x04, "power cap"},
                                                {0x08, "hardware slowdown"},
                                                {0x10, "sync boost"},
                                                {0x20, "thermal slowdown (software)"},
                                                {0x40, "thermal slowdown (hardware)"},
                                                {0x80, "power brake"}};

/// Holds what libnvidia-ml.so.1 exports. Null where the driver lacks a function.
struct Api {
  Return (*init)() = nullptr;
  const char* (*error_string)(Return) = nullptr;
  Return (*driver_version)(char*, unsigned) = nullptr;
  Return (*cuda_version)(int*) = nullptr;
  Return (*count)(unsigned*) = nullptr;
  Return (*handle)(unsigned index, Device*) = nullptr;
  Return (*name)(Device, char*, unsigned) = nullptr;
  Return (*uuid)(Device, char*, unsigned) = nullptr;
  Return (*pci_info)(Device, PciInfo*) = nullptr;
  Return (*memory)(Device, Memory*) = nullptr;
  Return (*utilization)(Device, Utilization*) = nullptr;
  Return (*temperature)(Device, int sensor, unsigned* celsius) = nullptr;
  Return (*ecc_mode)(Device, int* current, int* pending) = nullptr;
  Return (*ecc_errors)(Device, int type, int counter, unsigned long long*) = nullptr;
  Return (*clock_reasons)(Device, unsigned long long*) = nullptr;
  Return (*persistence)(Device, int*) = nullptr;
  Return (*mig_mode)(Device, unsigned* current, unsigned* pending) = nullptr;
  Return (*capability)(Device, int* major, int* minor) = nullptr;
  Return (*processes)(Device, unsigned* count, ProcessInfo*) = nullptr;
  Return (*peer_status)(Device, Device, int what, int* status) = nullptr;
};

}  // namespace lockstep::gpus::nvml
