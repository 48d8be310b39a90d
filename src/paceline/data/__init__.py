"""Data brought to where training finds it: public sets fetched and checked. It trains nothing and imports no torch."""
