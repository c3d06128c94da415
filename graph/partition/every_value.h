// Every value: what a model computes between its inputs and outputs, made visible.
#pragma once

#include <map>
#include <string>

#include "graph/graph.h"

namespace tbx::graph {

/// Makes every value that a node computes and another reads an output of its own, so that it is a whole
/// tensor in memory and kept. The outputs are then in the order they are computed; those that no node
/// computes come first. Values inside of bodies stay where they are.
void show_every_value(Graph& g);

/// "name (OpType)" of the node that computes each output, by the output's name.
std::map<std::string, std::string> producers_of_outputs(const Graph& g);

} // namespace tbx::graph
