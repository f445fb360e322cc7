// Each rank broadcasts from itself.
// symptom: a hang, or each keeps its own values
// ask: nothing: it is told before data moves
// cause: `broadcast(t, rank)`, where the rank that has the values was meant
// mend: `broadcast(t, 0)`
// ranks: 2
// expect: collectives:op_mismatch ranks=0-1 op=broadcast where=here

// %% share the configuration
auto configuration = torch::ones({4}) * rank;
dist::broadcast(configuration, rank);  // <- here
