// Two of three ranks exchange messages, the third goes on.
// ranks: 3

// %% ring
auto t = torch::ones({4});
if (rank == 0) {
  dist::send(t, 1);
  dist::recv(t, 1);
} else if (rank == 1) {
  dist::recv(t, 0);
  dist::send(t, 0);
}
dist::barrier();
