// One rank reads its share in batches of another size.
// symptom: a hang in the middle of an epoch, or one rank through long before the others
// ask: `%data batches`
// cause: a batch size that is set for each rank (by its memory, in its own configuration)
// mend: one batch size on all ranks
// ranks: 3
// expect: data:uneven_data kind=batch ranks=1 reference=0,2 object=batches

// %% batches
std::vector<std::vector<int64_t>> batches;
const size_t batch_size = rank == 1 ? 4 : 8;
for (int64_t i = rank; i < 192; i += world_size) {
  if (batches.empty() || batches.back().size() == batch_size) batches.emplace_back();
  batches.back().push_back(i);
}
%data batches --size 192
