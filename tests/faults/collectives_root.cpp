// Each rank broadcasts from itself.
// symptom: a hang, or each rank keeps its own values
// run: nothing: reported before data moves
// cause: `broadcast(t, rank)` instead of the rank that has the values
// fix: `broadcast(t, 0)`
// ranks: 2
// expect: collectives:op_mismatch ranks=0-1 op=broadcast where=here

// %% share the configuration
auto configuration = torch::ones({4}) * rank;
dist::broadcast(configuration, rank);  // <- here
