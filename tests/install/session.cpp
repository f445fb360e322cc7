// %% from an installed tree
#include <lockstep/inspect.h>
auto ranks = torch::tensor({rank});
dist::all_reduce(ranks);
std::cout << "sum of ranks is " << ranks.item<int>() << ", interposer: " << dist::is_interposer_active() << '\n';

// %% the LibTorch that the worker has loaded, and what its start leaves in the environment
#include <dlfcn.h>
Dl_info library;
dladdr(reinterpret_cast<void*>(&at::get_num_threads), &library);
std::cout << "LibTorch is " << library.dli_fname << '\n';
const char* path = std::getenv("LD_LIBRARY_PATH");
std::cout << "LD_LIBRARY_PATH is " << (path ? path : "unset") << '\n';
