// Lists what the plug-in needs of libtorch_cuda.so beside virtual functions. It is bound when it is called, and looked
// for before. check_symbols.py compares the list with the library when it is linked.
#pragma once

namespace lockstep::cuda {

inline constexpr const char* kNcclSymbols[] = {
    // c10d::ProcessGroupNCCL::ProcessGroupNCCL(store, rank, size, options)
    ("_ZN4c10d16ProcessGroupNCCLC1EN3c1013intrusive_ptrINS_5StoreENS1_6detail34intrusive_target_default_null_typeIS3_"
     "EEEEiiNS2_INS0_7OptionsENS5_IS8_EEEE"),
    // c10d::ProcessGroupNCCL::Options::Options(bool)
    "_ZN4c10d16ProcessGroupNCCL7OptionsC1Eb",
};

}  // namespace lockstep::cuda
