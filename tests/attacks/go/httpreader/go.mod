module httpreader

go 1.24
