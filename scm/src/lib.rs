//! Container manager: nodes, placement, container life cycle, block ranges, deletion log.
