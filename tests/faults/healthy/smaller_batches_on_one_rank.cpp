// As many batches everywhere, smaller ones on a rank with less memory: nobody waits.
// ranks: 3
// ok: data

// %% batches
std::vector<std::vector<int64_t>> batches;
for (int64_t i = 0; i < 8; ++i)
  for (int64_t k = 0; k < (rank == 1 ? 4 : 8); ++k) {
    if (k == 0) batches.emplace_back();
    batches.back().push_back(rank * 64 + i * 8 + k);
  }
%data batches
