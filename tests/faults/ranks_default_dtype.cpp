// One rank makes its tensors in double precision.
// symptom: dtypes that do not match, or one slow rank
// run: `%ranks`
// cause: `set_default_dtype` in code that one rank runs
// fix: the same settings on all ranks
// ranks: 3
// expect: ranks:mismatch kind=setting ranks=2 reference=0-1

// %% a setting
if (rank == 2) torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
%ranks
