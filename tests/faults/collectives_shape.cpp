// Predictions are gathered, and one rank's last batch is smaller.
// symptom: garbage in the metrics, or a hang
// run: nothing: reported before data moves
// cause: all_gather needs equal shapes
// fix: pad, or `all_gather_object`
// thread: Lightning-AI/pytorch-lightning#7773
// ranks: 3
// expect: collectives:shape_mismatch ranks=2 reference=0-1 op=all_gather where=here

// %% gather predictions
auto predictions = torch::ones({rank == 2 ? 3 : 4, 10});
auto all = dist::all_gather(predictions);  // <- here
