// Whether the functions of liblockstep_interpose (collectives/interpose) stand in front of the C library's in this
// process. What the files of this folder do there, they do in its hooks; where the library is absent they have
// fallbacks, which docs/dist.md describes.
#pragma once

namespace lockstep::dist {

/// True where calls of LibTorch and Gloo reach the hooks. Does not change while the process runs.
bool interposed();

}  // namespace lockstep::dist
