package model

// States shows to our program what the cluster has gathered of its containers.
func States(cluster ClusterState) []*AggregateContainerState {
	found := []*AggregateContainerState{}
	for _, state := range cluster.(*clusterState).aggregateStateMap {
		found = append(found, state)
	}
	return found
}
