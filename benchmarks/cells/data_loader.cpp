auto dataset = torch::data::datasets::TensorDataset(images).map(torch::data::transforms::Stack<torch::data::TensorExample>());
auto loader = torch::data::make_data_loader(std::move(dataset), 16 + @);
int64_t seen = 0;
for (auto& batch : *loader) seen += batch.data.size(0);
