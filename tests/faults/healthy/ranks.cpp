// Variables that differ between ranks as they should: numbers, ports, folders.
// ranks: 3
// ok: ranks

// %% environment
setenv("LOG_DIR", ("/tmp/log-" + std::to_string(rank)).c_str(), 1);
setenv("RANK", std::to_string(rank).c_str(), 1);
%ranks
