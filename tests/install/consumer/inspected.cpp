// <lockstep/inspect.h> alone: nothing that it needs was included before.
#include <lockstep/inspect.h>

bool same_on_all_ranks(const at::Tensor& tensor) { return lockstep::inspect::verify(tensor).ok(); }
