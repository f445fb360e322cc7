// The last micro-batch is smaller, and the next stage of the pipeline receives whole ones.
// symptom: SIGABRT in recv, or the end of a received tensor is that of the message before
// run: nothing: reported before data moves
// cause: the receiver assumes the size of a message, and the sender has less or more
// fix: send the size first, or drop the last batch
// ranks: 2
// exit: 1
// expect: collectives:shape_mismatch ranks=0,1 op=send

// %% stages of a pipeline
auto received = torch::empty({4, 3});
for (int samples : {4, 4, 2}) {
  if (rank == 0) dist::send(torch::ones({samples, 3}), 1);
  else dist::recv(received, 0);
}
