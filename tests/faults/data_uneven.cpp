// 70 samples for three ranks in batches of 8: one rank has a batch less.
// symptom: a hang in the last step of an epoch
// run: `%data indices --batch-size N`
// cause: shares that differ by some samples
// fix: drop the last batch, pad, or `--join` and `net.join(…)`
// thread: Lightning-AI/pytorch-lightning#20404
// ranks: 3
// expect: data:uneven_data kind=batch ranks=2 reference=0-1 object=indices

// %% shares
std::vector<int64_t> indices;
const int64_t begin = rank * 26, end = std::min<int64_t>(70, begin + 26);
for (int64_t i = begin; i < end; ++i) indices.push_back(i);
%data indices --batch-size 8 --size 70
