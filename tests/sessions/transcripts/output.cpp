// run: -n 2

// %% equal lines once, others per rank
std::cout << "the same" << std::endl;
printf("rank %d here\n", int(rank));
fflush(stdout);

// %% what several layers write keeps its order
printf("first\n");
fflush(stdout);
std::cout << "second" << std::endl;
(void)!::write(1, "third\n", 6);
