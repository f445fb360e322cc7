// One rank reads its share in batches of another size.
// symptom: a hang in the middle of an epoch, or one rank finishes long before the others
// run: `%data batches`
// cause: each rank has its own batch size (by its memory, in its configuration)
// fix: the same batch size on all ranks
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
