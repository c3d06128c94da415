#include "runtime/sources.h"

#include <algorithm>

namespace tbx::runtime {

std::vector<std::vector<int>> sources_of(const Executable& executable) {
  std::vector<std::vector<int>> sources(executable.steps.size()), writers(executable.buffers.size());
  for (size_t s = 0; s < executable.steps.size(); ++s) {
    std::vector<int>& mine = sources[s];
    std::vector<int> read;
    for_each_buffer(executable.steps[s], [&](int buffer, bool writes) {
      std::vector<int>& w = writers[static_cast<size_t>(buffer)];
      if (!writes) {
        mine.insert(mine.end(), w.begin(), w.end());
        read.push_back(buffer);
        return;
      }
      // What changes a buffer in place stands for those that wrote it before.
      if (std::find(read.begin(), read.end(), buffer) != read.end()) w.clear();
      w.push_back(static_cast<int>(s));
    });
    std::sort(mine.begin(), mine.end());
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  }
  return sources;
}

} // namespace tbx::runtime
